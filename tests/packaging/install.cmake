# Installs the build tree BUILD into an empty PREFIX, by way of another one: an installed package must
# not remember where it was installed.
file(REMOVE_RECURSE ${PREFIX} ${PREFIX}.moved)
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}.moved --config "${CONFIG}"
  COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${PREFIX}.moved ${PREFIX})
