// Asio is compiled once, here, instead of in every file that uses it: the target nibble_asio.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
