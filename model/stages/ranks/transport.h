// Messages between the processes of one job, its ranks: over MPI (mpi_transport.h), and between threads for tests
// (tests/support/local_transport.h).
#pragma once
#include "base/error.h"
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Thrown when another rank has ended, or cannot be reached.
struct RankLost : Error {
    using Error::Error;
};

class Transport {
  public:
    virtual ~Transport() = default;

    virtual uint32_t rank() const = 0; // of this process, below size()
    virtual uint32_t size() const = 0;
    virtual std::string host() const = 0; // of this process

    // Messages between two ranks arrive in the order in which they were sent. Several threads may call at once, each with another
    // rank. send() may wait until the other rank receives. Throw RankLost; Error for a message of 2 GiB or more.
    virtual void send(uint32_t to, std::span<const std::byte> message) = 0;
    virtual std::vector<std::byte> receive(uint32_t from) = 0;
};

} // namespace tq
