// Ranks that are threads of one process, for tests of what ranks do.
#pragma once
#include "model/stages/ranks/transport.h"
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace tq {

class LocalRanks {
  public:
    explicit LocalRanks(uint32_t size) : size_(size) {}

    uint32_t size() const { return size_; }
    std::unique_ptr<Transport> transport(uint32_t rank); // refers to this
    // From now on whoever waits for this rank, or sends to it, gets RankLost, and so does the rank itself.
    void end(uint32_t rank);

  private:
    class OfRank;
    using Message = std::vector<std::byte>;

    const uint32_t size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<uint32_t, uint32_t>, std::deque<Message>> queues_; // by sender and receiver
    std::vector<bool> ended_ = std::vector<bool>(size_);
};

} // namespace tq
