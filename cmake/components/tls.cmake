# Makes distgrad::tls: distgrad::distgrad, and OpenSSL for what includes <boost/asio/ssl.hpp>.

if(NOT TARGET distgrad::tls)
  find_package(OpenSSL QUIET)
  if(TARGET OpenSSL::SSL)
    add_library(distgrad_tls INTERFACE)
    add_library(distgrad::tls ALIAS distgrad_tls)
    target_link_libraries(distgrad_tls INTERFACE
      distgrad::distgrad OpenSSL::SSL OpenSSL::Crypto)
  else()
    string(CONCAT DISTGRAD_MISSING "component 'tls' needs OpenSSL, which was not found. "
      "On Debian: apt-get install libssl-dev; elsewhere name its folder in OPENSSL_ROOT_DIR")
  endif()
endif()
