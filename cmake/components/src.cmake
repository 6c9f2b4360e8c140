# Makes distgrad::src: link it instead of distgrad::distgrad, and each of your files compiles only
# declarations. The library is built in your build, with your flags, and only if something links it.

if(NOT TARGET distgrad::src)
  add_library(distgrad_src STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/src.cpp")
  add_library(distgrad::src ALIAS distgrad_src)
  target_compile_definitions(distgrad_src PUBLIC DISTGRAD_SEPARATE_COMPILATION)
  target_link_libraries(distgrad_src PUBLIC distgrad::distgrad)
  set_target_properties(distgrad_src PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
