# Install rules. The package is relocatable: it names libtorch and Boost only through targets that
# DistgradDependencies.cmake makes anew on the machine that uses it.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/distgrad")

install(TARGETS distgrad EXPORT distgradTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILE_SET bodies DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT distgradTargets NAMESPACE distgrad:: DESTINATION "${package_dir}")
# By itself: the file above does not load where there is no libtorch.
install(TARGETS distgrad_wire EXPORT distgradWireTargets)
install(EXPORT distgradWireTargets NAMESPACE distgrad:: DESTINATION "${package_dir}")

write_basic_package_version_file(distgradConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/distgradConfigVersion.cmake"
  cmake/distgradConfig.cmake cmake/DistgradDependencies.cmake cmake/DistgradTorch.cmake
  DESTINATION "${package_dir}")
install(DIRECTORY cmake/components DESTINATION "${package_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# pkg-config. Debian's libtorch logs through glog, in inline functions as well.
file(RELATIVE_PATH DISTGRAD_PC_PREFIX
  "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
get_target_property(torch_libraries distgrad::torch INTERFACE_LINK_LIBRARIES)
set(DISTGRAD_PC_LIBS)
if(torch_libraries MATCHES "libglog")
  set(DISTGRAD_PC_LIBS " -lglog")
endif()
foreach(name distgrad distgrad-wire)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
endforeach()
