# Fails when an object file of a program defines a function of distgrad as the only one of its name.
execute_process(COMMAND "${NM}" --defined-only --extern-only --demangle ${OBJECTS}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]+ [TDBR] distgrad::[^\n]*" strong "${symbols}")
string(REGEX MATCHALL "[0-9a-f]+ [VWu] distgrad::[^\n]*" weak "${symbols}")
if(strong OR NOT weak)
  list(JOIN strong "\n" strong)
  message(FATAL_ERROR "not inline:\n${strong}")
endif()
