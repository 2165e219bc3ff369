# What is installed: the library (component *_runtime), and what programs are built with (*_development).
#
# One build serves two layouts, which differ in where the library lies. The package files lead from their own place to
# the headers and the library, so each layout has its own.
include(CMakePackageConfigHelpers)

write_basic_package_version_file(greyhoundConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# greyhound_install(<component prefix> LIBDIR <dir> DOCDIRS <runtime's> <development's> COPYRIGHT <file> <name>
#                   PC_LIBDIR <dir> PC_INCLUDEDIR <dir> [EXCLUDE_FROM_ALL])
# Directories are relative to the prefix, except the two that are written into greyhound.pc.
function(greyhound_install prefix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "LIBDIR;PC_LIBDIR;PC_INCLUDEDIR" "DOCDIRS;COPYRIGHT")
  set(exclude)
  if(arg_EXCLUDE_FROM_ALL)
    set(exclude EXCLUDE_FROM_ALL)
  endif()
  set(runtime COMPONENT ${prefix}_runtime ${exclude})
  set(development COMPONENT ${prefix}_development ${exclude})
  set(cmake_dir ${arg_LIBDIR}/cmake/greyhound)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/package/${prefix})

  install(TARGETS greyhound EXPORT ${prefix}Targets
    LIBRARY DESTINATION ${arg_LIBDIR} ${runtime} NAMELINK_COMPONENT ${prefix}_development)
  install(DIRECTORY include/greyhound DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${development})

  install(EXPORT ${prefix}Targets FILE greyhoundTargets.cmake NAMESPACE greyhound::
    DESTINATION ${cmake_dir} ${development})
  configure_package_config_file(src/package/greyhoundConfig.cmake.in ${generated}/greyhoundConfig.cmake
    INSTALL_DESTINATION ${cmake_dir})
  install(FILES ${generated}/greyhoundConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/greyhoundConfigVersion.cmake
    DESTINATION ${cmake_dir} ${development})

  configure_file(src/package/greyhound.pc.in ${generated}/greyhound.pc @ONLY)
  install(FILES ${generated}/greyhound.pc DESTINATION ${arg_LIBDIR}/pkgconfig ${development})

  list(POP_FRONT arg_DOCDIRS runtime_docdir development_docdir)
  list(POP_FRONT arg_COPYRIGHT file name)
  install(FILES ${file} DESTINATION ${runtime_docdir} RENAME ${name} ${runtime})
  if(NOT development_docdir STREQUAL runtime_docdir)
    install(FILES ${file} DESTINATION ${development_docdir} RENAME ${name} ${development})
  endif()
endfunction()

# `cmake --install` and the tarball. greyhound.pc starts from where it lies, so that the tree may be moved.
file(RELATIVE_PATH pc_to_include ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
greyhound_install(greyhound
  LIBDIR ${CMAKE_INSTALL_LIBDIR} DOCDIRS ${CMAKE_INSTALL_DOCDIR} ${CMAKE_INSTALL_DOCDIR} COPYRIGHT LICENSE LICENSE
  PC_LIBDIR "\${pcfiledir}/.." PC_INCLUDEDIR "\${pcfiledir}/${pc_to_include}")
