# Makes the Debian packages, checks their files and control fields, and installs them below ROOT.
include(${CMAKE_CURRENT_LIST_DIR}/pack.cmake)

string(REGEX MATCH "^[0-9]+[.][0-9]+" abi ${VERSION})
set(runtime libgreyhound${abi})
set(development libgreyhound-dev)

pack(DEB)
list(TRANSFORM packages REPLACE "_[^_]*$" "" OUTPUT_VARIABLE found)
expect_equal("packages" "${found}" "${development}_${PACKAGE_VERSION};${runtime}_${PACKAGE_VERSION}")
list(GET packages 0 ${development}_deb)
list(GET packages 1 ${runtime}_deb)

# ---- Files -------------------------------------------------------------------------------------

foreach(package IN ITEMS ${runtime} ${development})
  foreach(folder IN ITEMS ${package} both)
    execute_process(COMMAND ${DPKG_DEB} -x ${OUTPUT}/first/${${package}_deb} ${OUTPUT}/${folder}
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND ${DPKG_DEB} -e ${OUTPUT}/first/${${package}_deb} ${OUTPUT}/${package}.control
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()

expect_timestamps(${OUTPUT}/both)

set(lib usr/lib/${ARCHITECTURE})
list_files(found ${OUTPUT}/${runtime})
expect_equal("files of ${runtime}" "${found}"
  "${lib}/libgreyhound.so.${abi};${lib}/libgreyhound.so.${VERSION};usr/share/doc/${runtime}/copyright")

file(GLOB headers RELATIVE ${SOURCE}/include ${SOURCE}/include/greyhound/*)
list(TRANSFORM headers PREPEND usr/include/)
string(TOLOWER "${CONFIG}" config)
if(NOT config)
  set(config noconfig)
endif()
set(expected
  ${headers}
  ${lib}/cmake/greyhound/greyhoundConfig.cmake
  ${lib}/cmake/greyhound/greyhoundConfigVersion.cmake
  ${lib}/cmake/greyhound/greyhoundTargets-${config}.cmake
  ${lib}/cmake/greyhound/greyhoundTargets.cmake
  ${lib}/libgreyhound.so
  ${lib}/pkgconfig/greyhound.pc
  usr/share/doc/${development}/copyright)
list(SORT expected)
list_files(found ${OUTPUT}/${development})
expect_equal("files of ${development}" "${found}" "${expected}")

file(READ_SYMLINK ${OUTPUT}/both/${lib}/libgreyhound.so target)
expect_equal("libgreyhound.so" ${target} libgreyhound.so.${abi})
file(READ_SYMLINK ${OUTPUT}/both/${lib}/libgreyhound.so.${abi} target)
expect_equal("libgreyhound.so.${abi}" ${target} libgreyhound.so.${VERSION})

# ---- Control information -----------------------------------------------------------------------

function(expect_field package field regex)
  execute_process(COMMAND ${DPKG_DEB} -f ${OUTPUT}/first/${${package}_deb} ${field}
    OUTPUT_VARIABLE value OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT value MATCHES "^${regex}$")
    message(FATAL_ERROR "${package}, ${field}:\n  found    ${value}\n  expected ${regex}")
  endif()
endfunction()

string(REPLACE "." "[.]" version_regex ${PACKAGE_VERSION})
string(REPLACE "+" "[+]" version_regex ${version_regex})
foreach(package IN ITEMS ${runtime} ${development})
  expect_field(${package} Package ${package})
  expect_field(${package} Version ${version_regex})
  expect_field(${package} Architecture "[a-z0-9]+")
  expect_field(${package} Maintainer ".+")
endforeach()
expect_field(${runtime} Section libs)
expect_field(${runtime} Depends ".*libc6 [(]>= [0-9.]+[)].*")
expect_field(${development} Section libdevel)
expect_field(${development} Depends "${runtime} [(]= ${version_regex}[)]")

file(READ ${OUTPUT}/${runtime}.control/triggers triggers)
expect_equal("triggers" "${triggers}" "activate-noawait ldconfig\n")
file(READ ${OUTPUT}/${runtime}.control/shlibs shlibs)
expect_equal("shlibs" "${shlibs}" "libgreyhound ${abi} ${runtime} (>= ${VERSION})\n")

# ---- Installation ------------------------------------------------------------------------------

# Only root may install, also below another folder. Others unpack.
execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT user EQUAL 0)
  file(COPY ${OUTPUT}/both/usr DESTINATION ${ROOT})
  message(STATUS "unpacked and not installed: only root may install")
  return()
endif()

# ROOT is a machine with this one's packages, by which dependencies are judged, and without their files. There is no
# program to run in it: the packages' scripts run here, with an ldconfig that does nothing.
file(MAKE_DIRECTORY ${ROOT}/var/lib/dpkg/info ${ROOT}/var/lib/dpkg/updates ${ROOT}/var/lib/dpkg/triggers)
file(COPY /var/lib/dpkg/status DESTINATION ${ROOT}/var/lib/dpkg)
file(WRITE ${OUTPUT}/bin/ldconfig "#!/bin/sh\n")
file(CHMOD ${OUTPUT}/bin/ldconfig PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(ENV{PATH} ${OUTPUT}/bin:$ENV{PATH})

# Runs dpkg below ROOT and sets `failed`.
function(dpkg)
  execute_process(COMMAND dpkg --root=${ROOT} --force-script-chrootless --log=/dev/null ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(failed ${result} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_success)
  if(failed)
    message(FATAL_ERROR "dpkg: ${output}")
  endif()
endfunction()

function(list_installed variable)
  list_files(files ${ROOT})
  list(FILTER files EXCLUDE REGEX "^var/lib/dpkg/")
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

dpkg(--purge ${runtime} ${development})  # this machine may have them

# The development package alone lacks the library.
dpkg(--install ${OUTPUT}/first/${${development}_deb})
if(NOT failed)
  message(FATAL_ERROR "${development} can be installed without ${runtime}")
endif()
dpkg(--install ${OUTPUT}/first/${${runtime}_deb} ${OUTPUT}/first/${${development}_deb})
expect_success()

# Nothing stays behind.
dpkg(--purge ${runtime} ${development})
expect_success()
list_installed(found)
expect_equal("files after removal" "${found}" "")

dpkg(--install ${OUTPUT}/first/${${runtime}_deb} ${OUTPUT}/first/${${development}_deb})
expect_success()
list_files(found ${ROOT}/usr)
list_files(expected ${OUTPUT}/both/usr)
expect_equal("files after installation" "${found}" "${expected}")
