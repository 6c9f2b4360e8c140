# find_package(distgrad 0.1 CONFIG)                  distgrad::distgrad
# find_package(distgrad 0.1 CONFIG COMPONENTS src)   also distgrad::src; each file below components/
#                                                    is a component and says what it adds
# find_package(distgrad 0.1 CONFIG COMPONENTS wire)  distgrad::wire alone, without libtorch

# find_package reports it, and stops where the package was required.
macro(_distgrad_not_found reason)
  set(distgrad_FOUND FALSE)
  set(distgrad_NOT_FOUND_MESSAGE "${reason}")
endmacro()

unset(DISTGRAD_MISSING)
set(DISTGRAD_WITHOUT_TORCH OFF)
if(distgrad_FIND_COMPONENTS STREQUAL "wire")
  set(DISTGRAD_WITHOUT_TORCH ON)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/DistgradDependencies.cmake")
if(DISTGRAD_MISSING)
  _distgrad_not_found("${DISTGRAD_MISSING}")
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/distgradWireTargets.cmake")
if(NOT DISTGRAD_WITHOUT_TORCH)
  include("${CMAKE_CURRENT_LIST_DIR}/distgradTargets.cmake")
endif()

foreach(_distgrad_component IN LISTS distgrad_FIND_COMPONENTS)
  set(_distgrad_file "${CMAKE_CURRENT_LIST_DIR}/components/${_distgrad_component}.cmake")
  if(EXISTS "${_distgrad_file}")
    include("${_distgrad_file}")
  else()
    file(GLOB _distgrad_known RELATIVE "${CMAKE_CURRENT_LIST_DIR}/components"
      "${CMAKE_CURRENT_LIST_DIR}/components/*.cmake")
    list(TRANSFORM _distgrad_known REPLACE "\\.cmake$" "")
    list(JOIN _distgrad_known ", " _distgrad_known)
    set(DISTGRAD_MISSING
      "distgrad has no component '${_distgrad_component}'; it has ${_distgrad_known}")
  endif()
  if(TARGET distgrad::${_distgrad_component})
    set(distgrad_${_distgrad_component}_FOUND TRUE)
  elseif(distgrad_FIND_REQUIRED_${_distgrad_component})
    _distgrad_not_found("${DISTGRAD_MISSING}")
    return()
  endif()
endforeach()
