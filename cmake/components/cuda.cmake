# Makes distgrad::cuda: distgrad::distgrad, and what <distgrad/queue/cuda_queues.hpp> needs of the
# CUDA toolkit and of a libtorch that was built for CUDA. The CUDA language is not enabled.

option(DISTGRAD_CUDA_KERNELS
  "distgrad::cuda also loads libtorch's CUDA kernels; OFF where libraries they need are missing"
  ON)

if(NOT TARGET distgrad::cuda)
  find_package(CUDAToolkit QUIET)
  get_target_property(_distgrad_libraries distgrad::torch INTERFACE_LINK_LIBRARIES)
  foreach(_distgrad_library IN LISTS _distgrad_libraries)
    if(_distgrad_library MATCHES "libc10\\.")
      get_filename_component(_distgrad_folder "${_distgrad_library}" DIRECTORY)
      find_library(DISTGRAD_C10_CUDA c10_cuda HINTS "${_distgrad_folder}" NO_DEFAULT_PATH)
      find_library(DISTGRAD_TORCH_CUDA torch_cuda HINTS "${_distgrad_folder}" NO_DEFAULT_PATH)
      mark_as_advanced(DISTGRAD_C10_CUDA DISTGRAD_TORCH_CUDA)
    endif()
  endforeach()
  if(TARGET CUDA::cudart AND DISTGRAD_C10_CUDA AND DISTGRAD_TORCH_CUDA)
    add_library(distgrad_cuda INTERFACE)
    add_library(distgrad::cuda ALIAS distgrad_cuda)
    target_link_libraries(distgrad_cuda INTERFACE
      distgrad::distgrad "${DISTGRAD_C10_CUDA}" CUDA::cudart)
    # The libraries that libtorch's own need are found when the program starts.
    target_link_options(distgrad_cuda INTERFACE LINKER:--allow-shlib-undefined)
    if(DISTGRAD_CUDA_KERNELS)
      target_link_libraries(distgrad_cuda INTERFACE
        "-Wl,--push-state,--no-as-needed" "${DISTGRAD_TORCH_CUDA}" "-Wl,--pop-state")
    endif()
  else()
    string(CONCAT DISTGRAD_MISSING "component 'cuda' needs a CUDA toolkit and a libtorch that was "
      "built for CUDA (of a PyPI wheel: name .../site-packages/torch in CMAKE_PREFIX_PATH)")
  endif()
endif()
