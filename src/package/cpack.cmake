# `cpack` in a build folder makes a tarball that can be unpacked anywhere and, on Debian and its relatives, two
# packages. The tests check them by greyhound_tarball, greyhound_with_deb and greyhound_deb_version.

set(CPACK_GENERATOR TGZ)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_VENDOR "The Greyhound authors")
if(NOT CPACK_PACKAGE_CONTACT)
  # Who distributes the packages names an address here, with -D.
  set(CPACK_PACKAGE_CONTACT ${CPACK_PACKAGE_VENDOR})
endif()
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_SOURCE_IGNORE_FILES "/[.]git" "/build")
# Not the builder's umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

string(TOLOWER "greyhound-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" greyhound_tarball)
set(greyhound_deb_version ${PROJECT_VERSION})
if(greyhound_with_cuda)
  string(APPEND greyhound_tarball -cuda)
  # The same Debian package, of a version that replaces the one without.
  string(APPEND greyhound_deb_version +cuda)
endif()

set(CPACK_PACKAGE_FILE_NAME ${greyhound_tarball})
# What differs between the generators.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/src/package/generator.cmake)

# ---- Debian ------------------------------------------------------------------------------------

find_program(DPKG_SHLIBDEPS_EXECUTABLE dpkg-shlibdeps)
find_program(GREYHOUND_FILE_EXECUTABLE file)  # CPack looks for it too, and stops without
set(greyhound_with_deb OFF)
if(DPKG_SHLIBDEPS_EXECUTABLE AND GREYHOUND_FILE_EXECUTABLE AND CMAKE_LIBRARY_ARCHITECTURE)
  set(greyhound_with_deb ON)
  list(APPEND CPACK_GENERATOR DEB)

  # The two packages go by the SONAME, as Debian's policy asks, so that two ABIs can be installed side by side.
  set(runtime_package libgreyhound${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  set(development_package libgreyhound-dev)
  set(debian_libdir lib/${CMAKE_LIBRARY_ARCHITECTURE})

  greyhound_install(debian
    LIBDIR ${debian_libdir} DOCDIRS share/doc/${runtime_package} share/doc/${development_package}
    COPYRIGHT src/package/debian/copyright copyright
    PC_LIBDIR /usr/${debian_libdir} PC_INCLUDEDIR /usr/include
    EXCLUDE_FROM_ALL)

  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_VERSION ${greyhound_deb_version})
  set(CPACK_DEBIAN_PACKAGE_MULTIARCH same)  # CMake before 3.31 leaves it out
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

  # CPack's own scripts call ldconfig too; the trigger is the way that Debian's policy asks for.
  configure_file(src/package/debian/shlibs.in package/debian/shlibs @ONLY)
  set(CPACK_DEBIAN_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime_package})
  set(CPACK_DEBIAN_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${PROJECT_SOURCE_DIR}/src/package/debian/triggers ${CMAKE_CURRENT_BINARY_DIR}/package/debian/shlibs)
  set(engines "This build has the CPU engine alone.")
  if(greyhound_with_cuda)
    set(engines "It works on CUDA streams and on the CPU.")
  endif()
  set(CPACK_DEBIAN_DEBIAN_RUNTIME_DESCRIPTION
"One call computes the cross-entropy loss of a batch of logits and overwrites
the logits with their gradient. ${engines}

This package has the shared library.")

  set(CPACK_DEBIAN_DEBIAN_DEVELOPMENT_PACKAGE_NAME ${development_package})
  set(CPACK_DEBIAN_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${runtime_package} (= ${greyhound_deb_version})")
  set(CPACK_DEBIAN_DEBIAN_DEVELOPMENT_DESCRIPTION
"This package has what programs are built with: the header, and the files for
CMake and pkg-config.")
endif()

include(CPack)
