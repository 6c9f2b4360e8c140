#pragma once
#include <boost/asio/ip/tcp.hpp>
#include <distgrad/queue/good.hpp>
