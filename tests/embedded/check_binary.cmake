# Fails if what a configuration does not name is in a program all the same.
#
#   cmake -D NM=nm -D PROGRAM=... -P check_binary.cmake
#   cmake ... -D EXPECTED=ON -P check_binary.cmake     fails if nothing of it is found
cmake_minimum_required(VERSION 3.24)

execute_process(COMMAND "${NM}" -C "${PROGRAM}" OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT symbols MATCHES "distgrad::TcpTransport")
  message(FATAL_ERROR "'${PROGRAM}' cannot be read, or has no symbols")
endif()

set(found)
foreach(unwanted "std::thread::_M_start_thread" "distgrad::CpuQueues" "distgrad::LoopbackTransport"
    "boost::beast" "boost::asio::ssl" " SSL_")
  string(FIND "${symbols}" "${unwanted}" position)
  if(NOT position EQUAL -1)
    list(APPEND found "${unwanted}")
  endif()
endforeach()
if(found AND NOT EXPECTED)
  message(FATAL_ERROR "'${PROGRAM}' contains ${found}")
elseif(EXPECTED AND NOT found)
  message(FATAL_ERROR "'${PROGRAM}' should contain some of it")
endif()
