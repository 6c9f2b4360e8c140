#include <distgrad/tensor/tensor_meta.hpp>

#include <boost/asio/ssl/context.hpp>
#include <boost/beast/version.hpp>

#include <cstdio>

bool other_file_agrees(distgrad::error_code code);
distgrad::error_code timeout_of_the_library();

int main() {
  boost::asio::ssl::context tls(boost::asio::ssl::context::tls);  // calls OpenSSL
  auto const dense = distgrad::has_dense_strides({2, 3}, {3, 1});
  std::printf("Beast %d, OpenSSL %s\n", BOOST_BEAST_VERSION,
              tls.native_handle() ? "works" : "fails");
  return dense && tls.native_handle() && other_file_agrees(timeout_of_the_library()) ? 0 : 1;
}
