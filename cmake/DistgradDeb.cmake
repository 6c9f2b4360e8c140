# `cpack -G DEB` in a build folder makes libdistgrad-dev_<version>_all.deb. It has headers only, so
# configuring is enough: nothing needs to be built first.

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME libdistgrad-dev)
if(NOT CPACK_PACKAGE_CONTACT)  # who distributes the package gives a name and an address
  set(CPACK_PACKAGE_CONTACT "distgrad developers <developers@distgrad.invalid>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed autograd for C++ on libtorch, header-only")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION [[
Calls functions on other workers, keeps values there, and lets one backward pass
follow the calls through every process. Transport, device queue and serializer
are template arguments.]])
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# Debian 12 has Boost 1.81 beside its default 1.74; from Debian 13 on the default is new enough.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libtorch-dev, libboost1.81-dev | libboost-dev (>= 1.81)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libssl-dev, libopenblas0-pthread")
# The licence, where Debian's policy wants it.
configure_file(LICENSE deb/copyright COPYONLY)
set(CPACK_INSTALLED_DIRECTORIES
  "${PROJECT_BINARY_DIR}/deb;/usr/share/doc/libdistgrad-dev")
include(CPack)
