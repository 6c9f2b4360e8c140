# Documentation shows only code that is built, and output that is checked. In each Markdown file
#
#     <!-- from FILE -->      the code block that follows stands in FILE, letter by letter
#     <!-- output of FILE --> the code block that follows is the comment below "// Output:" in FILE
#
# and a block of C++ without a mark is an error.
#
#   cmake -D ROOT=. -P check_readme.cmake      README.md and all of docs/
#   cmake -D ROOT=. -D DOCUMENTS=bad.md -D EXPECTED=bad.expected -P check_readme.cmake
#                                              finds exactly these mistakes
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/example_output.cmake")

set(findings "")
if(NOT DOCUMENTS)
  file(GLOB_RECURSE DOCUMENTS RELATIVE "${ROOT}" "${ROOT}/docs/*.md")
  list(APPEND DOCUMENTS README.md)
endif()

# Brackets and semicolons in code are syntax to CMake's lists, so lines are cut by hand.
macro(take_line)
  string(FIND "${rest}" "\n" end)
  string(SUBSTRING "${rest}" 0 ${end} line)
  math(EXPR after "${end} + 1")
  string(SUBSTRING "${rest}" ${after} -1 rest)
endmacro()

function(check_block document kind source language block)
  if(NOT kind)
    if(language STREQUAL "cpp")
      set(findings "${findings}${document}: a block of C++ without <!-- from FILE -->\n" PARENT_SCOPE)
    endif()
    return()
  endif()
  set(text "")
  if(EXISTS "${ROOT}/${source}")
    if(kind STREQUAL "from")
      file(READ "${ROOT}/${source}" text)
    else()
      example_output("${ROOT}/${source}" text)
    endif()
  endif()
  string(FIND "\n${text}" "\n${block}" position)
  if(position EQUAL -1 OR (kind STREQUAL "output of" AND NOT text STREQUAL block))
    set(findings "${findings}${document}: a block is not what ${source} has\n" PARENT_SCOPE)
  endif()
endfunction()

foreach(document IN LISTS DOCUMENTS)
  file(READ "${ROOT}/${document}" rest)
  set(kind "")
  while(NOT rest STREQUAL "")
    take_line()
    if(line MATCHES "^<!-- (from|output of) ([^ ]+) -->$")
      set(kind "${CMAKE_MATCH_1}")
      set(source "${CMAKE_MATCH_2}")
    elseif(line MATCHES "^```(.*)$")
      set(language "${CMAKE_MATCH_1}")
      set(block "")
      take_line()
      while(NOT line STREQUAL "```" AND NOT rest STREQUAL "")
        set(block "${block}${line}\n")
        take_line()
      endwhile()
      check_block("${document}" "${kind}" "${source}" "${language}" "${block}")
      set(kind "")
    endif()
  endwhile()
endforeach()

set(wanted "")
if(EXPECTED)
  file(READ "${EXPECTED}" wanted)
endif()
if(NOT findings STREQUAL wanted)
  message(FATAL_ERROR "found:\n${findings}expected:\n${wanted}")
endif()
