#pragma once
#include <distgrad/rpc/impl/listed.ipp>
#include <distgrad/rpc/impl/unused.ipp>
