# Install rules. The package is relocatable: it names libtorch and Boost only through targets that
# DistgradDependencies.cmake makes anew on the machine that uses it.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/distgrad")

install(TARGETS distgrad EXPORT distgradTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILE_SET bodies DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT distgradTargets NAMESPACE distgrad:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/distgradConfig.cmake.in distgradConfig.cmake
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(distgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/distgradConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/distgradConfigVersion.cmake"
  cmake/DistgradDependencies.cmake cmake/DistgradTorch.cmake
  cmake/DistgradSrc.cmake cmake/distgrad_src.cpp
  DESTINATION "${package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
