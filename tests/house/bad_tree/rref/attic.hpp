#pragma once
#include <distgrad/attic/box.hpp>
