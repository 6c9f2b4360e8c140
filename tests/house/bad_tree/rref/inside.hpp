#pragma once
#include <distgrad/rpc/detail/tool.hpp>
#include <distgrad/rpc/impl/listed.ipp>
