#include <distgrad/src.hpp>
