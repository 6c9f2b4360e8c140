# Makes `distgrad::torch`, the only name of libtorch that distgrad's exported targets contain. The
# absolute paths of headers and libraries thus belong to the machine that configures, never to the
# installed package.
#
# Two shapes of libtorch are known:
# - a folder with include/, lib/ and share/cmake/Torch whose libtorch was built for CUDA (the PyPI
#   wheel). Its own find_package insists on a CUDA toolkit, so headers and the two CPU libraries are
#   taken directly;
# - everything else, from find_package(Torch).

# The first folder of that first shape among the prefixes that find_package would look into.
function(_distgrad_find_cuda_libtorch out)
  set(prefixes ${Torch_ROOT} ${CMAKE_PREFIX_PATH})
  foreach(variable Torch_ROOT CMAKE_PREFIX_PATH)
    if(DEFINED ENV{${variable}})
      string(REPLACE ":" ";" from_environment "$ENV{${variable}}")
      list(APPEND prefixes ${from_environment})
    endif()
  endforeach()
  if(Torch_DIR)
    list(PREPEND prefixes "${Torch_DIR}/../../..")
  endif()
  foreach(prefix IN LISTS prefixes)
    if(EXISTS "${prefix}/share/cmake/Torch/TorchConfig.cmake"
       AND EXISTS "${prefix}/lib/libtorch_cuda.so")
      get_filename_component(prefix "${prefix}" ABSOLUTE)
      set(${out} "${prefix}" PARENT_SCOPE)
      return()
    elseif(EXISTS "${prefix}/share/cmake/Torch/TorchConfig.cmake")
      return()  # an earlier prefix wins, as in find_package
    endif()
  endforeach()
endfunction()

# distgrad::torch from libraries (full paths), include directories and compile options.
function(_distgrad_add_torch libraries includes options)
  add_library(distgrad::torch INTERFACE IMPORTED GLOBAL)
  set_target_properties(distgrad::torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${includes}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${includes}"
    INTERFACE_COMPILE_OPTIONS "${options}"
    # One header per operator: a file pays only for the operators it calls.
    INTERFACE_COMPILE_DEFINITIONS AT_PER_OPERATOR_HEADERS)
  if(UNIX AND NOT APPLE)
    # The kernels register themselves when the library is loaded, used by name or not.
    set(libraries "-Wl,--push-state,--no-as-needed" ${libraries} "-Wl,--pop-state")
  endif()
  set_property(TARGET distgrad::torch PROPERTY INTERFACE_LINK_LIBRARIES "${libraries}")
endfunction()

function(_distgrad_torch_from_folder prefix)
  # Wheels before 2.6 have the old C++ ABI and say so only here.
  file(STRINGS "${prefix}/share/cmake/Torch/TorchConfig.cmake" abi REGEX "_GLIBCXX_USE_CXX11_ABI=")
  string(REGEX MATCH "-D_GLIBCXX_USE_CXX11_ABI=[01]" abi "${abi}")
  _distgrad_add_torch("${prefix}/lib/libtorch_cpu.so;${prefix}/lib/libc10.so"
    "${prefix}/include;${prefix}/include/torch/csrc/api/include" "${abi}")
  # libtorch_cpu loads two CUDA libraries from neighbouring wheels. It finds them by its own rpath;
  # the linker has to be told.
  file(GLOB cuda_libraries "${prefix}/../nvidia/*/lib/libcudart.so.*"
                           "${prefix}/../nvidia/*/lib/libcupti.so.*")
  foreach(library IN LISTS cuda_libraries)
    get_filename_component(folder "${library}" DIRECTORY)
    get_filename_component(folder "${folder}" ABSOLUTE)
    set_property(TARGET distgrad::torch APPEND PROPERTY INTERFACE_LINK_OPTIONS
      "LINKER:-rpath-link,${folder}")
  endforeach()
  message(STATUS "distgrad: libtorch in ${prefix}")
endfunction()

# The file of an imported library, whatever configuration it was exported for.
function(_distgrad_location target out)
  get_target_property(location ${target} IMPORTED_LOCATION)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  if(NOT location AND configurations)
    list(GET configurations 0 configuration)
    get_target_property(location ${target} IMPORTED_LOCATION_${configuration})
  endif()
  if(location)
    set(${out} "${location}" PARENT_SCOPE)
  endif()
endfunction()

function(_distgrad_torch_from_package)
  if(NOT TARGET torch)
    find_package(Torch QUIET)
  endif()
  if(NOT TARGET torch)
    return()
  endif()
  get_target_property(options torch INTERFACE_COMPILE_OPTIONS)
  if(NOT options)
    set(options "")
  endif()
  get_target_property(includes torch INTERFACE_INCLUDE_DIRECTORIES)
  # The two shared libraries alone: `torch` itself would add protobuf, glog and gflags to the link.
  if(TARGET torch_cpu AND TARGET c10)
    _distgrad_location(torch_cpu cpu)
    _distgrad_location(c10 c10)
    # Debian's libtorch logs through glog, in inline functions as well.
    if(TARGET glog::glog)
      _distgrad_location(glog::glog glog)
    endif()
  endif()
  if(cpu MATCHES "\\.(so|dylib)" AND c10 MATCHES "\\.(so|dylib)")
    _distgrad_add_torch("${cpu};${c10}" "${includes}" "${options}")
    if(glog)
      set_property(TARGET distgrad::torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES "${glog}")
    endif()
    message(STATUS "distgrad: libtorch ${Torch_VERSION} in ${cpu}")
  else()
    _distgrad_add_torch("torch" "${includes}" "${options}")
    message(STATUS "distgrad: libtorch ${Torch_VERSION} from its target 'torch'")
  endif()
endfunction()

if(NOT TARGET distgrad::torch)
  _distgrad_find_cuda_libtorch(_distgrad_libtorch)
  if(_distgrad_libtorch)
    _distgrad_torch_from_folder("${_distgrad_libtorch}")
  else()
    _distgrad_torch_from_package()
  endif()
  unset(_distgrad_libtorch)
endif()
