#pragma once
#include <string>
#include <distgrad/config.hpp>
#include <boost/system/error_code.hpp>
