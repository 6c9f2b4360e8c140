#pragma once
#include <distgrad/wire/asio.hpp>
