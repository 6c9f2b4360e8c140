#pragma once
#include <boost/asio/buffer.hpp>
