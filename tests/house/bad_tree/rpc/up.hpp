#pragma once
#include <distgrad/queue/good.hpp>
#include <distgrad/rref/inside.hpp>
