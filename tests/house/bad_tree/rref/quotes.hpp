#pragma once
#include "distgrad/rpc/own.hpp"
