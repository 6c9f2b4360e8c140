# The table in tests/README.md is what the names of the tests say.
#
#   cmake -D TESTS=tests -P check_ids.cmake                 fails if it is not
#   cmake -D TESTS=tests -D WRITE=ON -P check_ids.cmake     writes it
cmake_minimum_required(VERSION 3.24)

get_filename_component(TESTS "${TESTS}" ABSOLUTE)
set(rows "")
file(GLOB_RECURSE sources RELATIVE "${TESTS}" "${TESTS}/*.cpp")
foreach(source IN LISTS sources)
  file(READ "${TESTS}/${source}" text)
  string(REPLACE ";" "," text "${text}")  # would cut CMake's lists
  string(REGEX MATCHALL
    "TEST_CASE[A-Z_]*\\(([A-Za-z_]+,)?[ \n]*\"(\\[[A-Z]+-[0-9]+\\])+[^\"]*\"([ \n]*\"[^\"]*\")*"
    cases "${text}")
  foreach(case IN LISTS cases)
    string(REGEX REPLACE "\"[ \n]*\"" "" case "${case}")
    string(REGEX REPLACE "^[^\"]*\"(.*)\"$" "\\1" name "${case}")
    string(REGEX MATCHALL "\\[(DA|OPT|RPC|FAULT)-[0-9]+\\]" ids "${name}")
    string(REGEX REPLACE "^(\\[[A-Z]+-[0-9]+\\])+ *" "" name "${name}")
    foreach(id IN LISTS ids)
      string(REGEX REPLACE "[][]" "" id "${id}")
      list(APPEND rows "| ${id} | ${name} | [${source}](${source}) |")
    endforeach()
  endforeach()
endforeach()
list(SORT rows COMPARE NATURAL)
list(JOIN rows "\n" table)
set(table "| Id | Behaviour | File |\n|---|---|---|\n${table}\n")

set(mark "<!-- written by readme/check_ids.cmake -->\n")
file(READ "${TESTS}/README.md" readme)
string(FIND "${readme}" "${mark}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "tests/README.md has no line ${mark}")
endif()
string(SUBSTRING "${readme}" 0 ${position} before)
set(wanted "${before}${mark}${table}")
if(WRITE)
  file(WRITE "${TESTS}/README.md" "${wanted}")
elseif(NOT readme STREQUAL wanted)
  message(FATAL_ERROR "the tests' names have changed; bring tests/README.md up to date:\n"
    "  cmake -D TESTS=tests -D WRITE=ON -P tests/readme/check_ids.cmake")
endif()
