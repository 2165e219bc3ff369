# Makes the Debian packages, checks their files and control fields, and unpacks them into ROOT.
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
  foreach(root IN ITEMS ${OUTPUT}/${package} ${ROOT})
    execute_process(COMMAND ${DPKG_DEB} -x ${OUTPUT}/first/${${package}_deb} ${root} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND ${DPKG_DEB} -e ${OUTPUT}/first/${${package}_deb} ${OUTPUT}/${package}.control
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()

expect_timestamps(${ROOT})

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

file(READ_SYMLINK ${ROOT}/${lib}/libgreyhound.so target)
expect_equal("libgreyhound.so" ${target} libgreyhound.so.${abi})
file(READ_SYMLINK ${ROOT}/${lib}/libgreyhound.so.${abi} target)
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
