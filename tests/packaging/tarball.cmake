# Packs the tarball NAME.tar.gz, unpacks it and moves it to OUTPUT/moved. It must hold the files of the installation
# INSTALLED, and must not name the folder that it was built in.
include(${CMAKE_CURRENT_LIST_DIR}/pack.cmake)

pack(TGZ)
expect_equal("packages" "${packages}" ${NAME}.tar.gz)

file(ARCHIVE_EXTRACT INPUT ${OUTPUT}/first/${NAME}.tar.gz DESTINATION ${OUTPUT})
file(RENAME ${OUTPUT}/${NAME} ${OUTPUT}/moved)

expect_timestamps(${OUTPUT}/moved)
list_files(found ${OUTPUT}/moved)
list_files(expected ${INSTALLED})
expect_equal("files" "${found}" "${expected}")
list(FIND found share/doc/greyhound/LICENSE licence)
if(licence EQUAL -1)
  message(FATAL_ERROR "no licence among ${found}")
endif()

string(REGEX REPLACE "([][.+*?()|^$])" "\\\\\\1" build_regex ${BUILD})
foreach(file IN LISTS found)
  file(STRINGS ${OUTPUT}/moved/${file} paths REGEX "${build_regex}")
  expect_equal("paths of the build in ${file}" "${paths}" "")
endforeach()
