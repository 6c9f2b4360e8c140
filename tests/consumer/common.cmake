# What the tests of this folder share. SOURCE and BUILD are distgrad's folders; everything a test
# makes is below SCRATCH, which is empty when it starts.
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Runs a command that has to fail and to say why.
function(run_failing reason)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake breaks lines where it likes
  string(FIND "${output}" "${reason}" position)
  if(result EQUAL 0 OR position EQUAL -1)
    message(FATAL_ERROR "result ${result} instead of a failure that says \"${reason}\": ${output}")
  endif()
endfunction()

# ctest counts the test as skipped.
function(skip reason)
  message(STATUS "skipped: ${reason}")
endfunction()

# Configures and builds the project in <folder> below SCRATCH/build.
function(build_project folder)
  run("${CMAKE_COMMAND}" -S "${folder}" -B "${SCRATCH}/build" ${ARGN})
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
endfunction()

# Stops unless the files below <folder> are exactly those that follow.
function(expect_files folder)
  file(GLOB_RECURSE found LIST_DIRECTORIES false RELATIVE "${folder}" "${folder}/*")
  set(missing ${ARGN})
  list(REMOVE_ITEM missing ${found})
  list(REMOVE_ITEM found ${ARGN})
  if(missing OR found)
    message(FATAL_ERROR "${folder} lacks \"${missing}\" and has \"${found}\" too much")
  endif()
endfunction()

# The files every installed copy has, relative to its prefix, with its CMake package in <package>.
function(installed_files package out)
  file(GLOB_RECURSE headers RELATIVE "${SOURCE}"
    "${SOURCE}/include/distgrad/*.hpp" "${SOURCE}/include/distgrad/*.ipp")
  file(GLOB components RELATIVE "${SOURCE}/cmake" "${SOURCE}/cmake/components/*")
  set(cmake distgradConfig.cmake distgradConfigVersion.cmake distgradTargets.cmake
    distgradWireTargets.cmake DistgradDependencies.cmake DistgradTorch.cmake ${components})
  list(TRANSFORM cmake PREPEND "${package}/")
  set(${out} ${headers} ${cmake} share/pkgconfig/distgrad.pc
    share/pkgconfig/distgrad-wire.pc PARENT_SCOPE)
endfunction()
