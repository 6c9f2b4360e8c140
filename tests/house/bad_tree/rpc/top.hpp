#pragma once
#include <distgrad/distgrad.hpp>
