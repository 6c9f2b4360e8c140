#pragma once
#include <distgrad/core/good.hpp>
