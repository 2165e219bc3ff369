# Read by cpack before each generator. The tarball holds what is installed by default, the Debian packages what lies
# where Debian wants it.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL debian_runtime debian_development)
endif()
