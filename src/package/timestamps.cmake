# Run by cpack on the files that it is about to pack. With SOURCE_DATE_EPOCH in the environment all of them bear that
# time, so that two packages of the same files are the same.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(
    COMMAND find ${CPACK_TEMPORARY_DIRECTORY} -exec touch --no-dereference --date=@$ENV{SOURCE_DATE_EPOCH} {} +
    COMMAND_ERROR_IS_FATAL ANY)
endif()
