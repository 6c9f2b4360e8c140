# Creates the Conan package on the system's libtorch and Boost, and runs its test package. Conan
# comes from PyPI into TOOLS, where it stays from one run to the next.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

# The first Python that can make an environment with pip in it.
function(find_python out)
  foreach(python python3 /usr/bin/python3)
    execute_process(COMMAND "${python}" -c "import ensurepip, venv" RESULT_VARIABLE result
      OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(${out} "${python}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(conan "${TOOLS}/bin/conan")
if(NOT EXISTS "${conan}")
  find_python(python)
  if(NOT python)
    skip("no python3 with venv: apt-get install python3-venv")
    return()
  endif()
  run("${python}" -m venv "${TOOLS}")
  execute_process(COMMAND "${TOOLS}/bin/python" -m pip install --quiet "conan>=2.4,<3"
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    skip("PyPI gave no conan")
    return()
  endif()
endif()

set(ENV{CONAN_HOME} "${TOOLS}/home")
run("${conan}" profile detect --force)
set(create "${conan}" create --no-remote -s compiler.cppstd=20 -s build_type=Debug
  -c "tools.build:cxxflags=['-g0']"
  -c "tools.cmake.cmaketoolchain:user_presets="
  -c "tools.cmake.cmaketoolchain:generator=$ENV{CMAKE_GENERATOR}"
  -c "tools.cmake.cmake_layout:test_folder=${SCRATCH}")
run(${create} "${SOURCE}/packaging/conan/system/boost")
run(${create} "${SOURCE}/packaging/conan/system/libtorch")
run(${create} "${SOURCE}"
  -o "&:with_beast=True" -o "&:with_cuda=True")

# Older standards are refused by name.
run_failing("20" "${conan}" create "${SOURCE}" --no-remote --test-folder= -s compiler.cppstd=17)
