#pragma once
#include <distgrad/rpc/up.hpp>
#include <distgrad/testing/suite.hpp>
