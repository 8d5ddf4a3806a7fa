// The differences between Winsock and the sockets of POSIX, for sockets*.cpp alone. The functions are in sockets_posix.cpp and
// sockets_windows.cpp.
#pragma once
#include <cstddef>
#include <string>
#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <cerrno>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#endif

namespace tq::server {

#ifdef _WIN32
using Handle = SOCKET;
using Polled = WSAPOLLFD;
inline constexpr int address_in_use = WSAEADDRINUSE, address_denied = WSAEACCES, address_unknown = WSAEADDRNOTAVAIL,
                     connecting = WSAEWOULDBLOCK;
inline constexpr int listener_option = SO_EXCLUSIVEADDRUSE; // else another program may take over the port
inline constexpr const char* allowed_ports = "another";
#else
using Handle = int;
using Polled = pollfd;
inline constexpr int address_in_use = EADDRINUSE, address_denied = EACCES, address_unknown = EADDRNOTAVAIL,
                     connecting = EINPROGRESS;
inline constexpr int listener_option = SO_REUSEADDR; // a server that was just stopped may start again
inline constexpr const char* allowed_ports = "one from 1024 on";
#endif

void start_sockets(); // before anything is looked up or made
int socket_error();   // of the call that has just failed
std::string socket_error_text(int error);
std::string look_up_error_text(int error); // of getaddrinfo()
bool lacks_descriptors(int error);
void prepare(Handle handle); // never blocks, and is closed in child processes
void close_handle(Handle handle);
int poll_all(Polled* sockets, size_t count, int timeout_ms); // less than 0: it failed

} // namespace tq::server
