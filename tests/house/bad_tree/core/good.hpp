#pragma once
#include <boost/system/error_code.hpp>
#include <distgrad/config.hpp>
#include <string>
