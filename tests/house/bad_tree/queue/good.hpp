#pragma once
#include <c10/core/Device.h>
#include <distgrad/core/good.hpp>
