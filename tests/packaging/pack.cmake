set(ENV{SOURCE_DATE_EPOCH} 1000000000)

# Runs cpack's GENERATOR on the build tree BUILD, twice, and sets `packages` to what the first run made. The same files
# must give the same packages.
function(pack generator)
  file(REMOVE_RECURSE ${OUTPUT})
  foreach(run first second)
    execute_process(
      COMMAND ${CPACK} -G ${generator} -C "${CONFIG}" -B ${OUTPUT}/${run}
      WORKING_DIRECTORY ${BUILD}
      OUTPUT_QUIET
      COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE_RECURSE ${OUTPUT}/${run}/_CPack_Packages)
    file(GLOB made RELATIVE ${OUTPUT}/${run} ${OUTPUT}/${run}/*)
    set(checksums_${run})
    foreach(file IN LISTS made)
      file(SHA256 ${OUTPUT}/${run}/${file} checksum)
      list(APPEND checksums_${run} "${file} ${checksum}")
    endforeach()
  endforeach()
  if(NOT checksums_first STREQUAL checksums_second)
    message(FATAL_ERROR "two runs differ:\n${checksums_first}\n${checksums_second}")
  endif()
  set(packages ${made} PARENT_SCOPE)
endfunction()

function(expect_equal what found expected)
  if(NOT "${found}" STREQUAL "${expected}")
    message(FATAL_ERROR "${what}:\n  found    ${found}\n  expected ${expected}")
  endif()
endfunction()

# The files and links below DIRECTORY, sorted.
function(list_files variable directory)
  file(GLOB_RECURSE files LIST_DIRECTORIES OFF RELATIVE ${directory} ${directory}/*)
  list(SORT files)
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# Each file below DIRECTORY bears the time that SOURCE_DATE_EPOCH says.
function(expect_timestamps directory)
  list_files(files ${directory})
  foreach(file IN LISTS files)
    file(TIMESTAMP ${directory}/${file} time "%s" UTC)
    expect_equal("time of ${file}" ${time} $ENV{SOURCE_DATE_EPOCH})
  endforeach()
endfunction()
