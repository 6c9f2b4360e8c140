# Makes distgrad::beast: distgrad::distgrad, where Boost has Beast's headers. They need no library,
# but a package manager may have installed Asio without them.

if(NOT TARGET distgrad::beast)
  get_target_property(DISTGRAD_BOOST_INCLUDE Boost::headers INTERFACE_INCLUDE_DIRECTORIES)
  find_path(DISTGRAD_BEAST_INCLUDE boost/beast/version.hpp HINTS ${DISTGRAD_BOOST_INCLUDE})
  mark_as_advanced(DISTGRAD_BEAST_INCLUDE)
  if(DISTGRAD_BEAST_INCLUDE)
    add_library(distgrad_beast INTERFACE)
    add_library(distgrad::beast ALIAS distgrad_beast)
    target_link_libraries(distgrad_beast INTERFACE distgrad::distgrad)
  else()
    string(CONCAT DISTGRAD_MISSING
      "component 'beast' needs the headers of Boost.Beast, which Boost here lacks")
  endif()
endif()
