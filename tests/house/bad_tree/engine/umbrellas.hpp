#pragma once
#include <ATen/ATen.h>
#include <torch/all.h>
#include <torch/torch.h>
#include <torch/types.h>
#include <boost/asio.hpp>
#include <boost/beast.hpp>
#include <iostream>
// #include <torch/torch.h> in a comment is no include
