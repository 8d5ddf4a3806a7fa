#include "tests/support/local_transport.h"

namespace tq {

class LocalRanks::OfRank final : public Transport {
  public:
    OfRank(LocalRanks& all, uint32_t rank) : all_(all), rank_(rank) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return all_.size_; }
    std::string host() const override { return "this process"; }

    void send(uint32_t to, std::span<const std::byte> message) override {
        const std::lock_guard lock(all_.mutex_);
        require(to);
        all_.queues_[{rank_, to}].emplace_back(message.begin(), message.end());
        all_.changed_.notify_all();
    }
    std::vector<std::byte> receive(uint32_t from) override {
        std::unique_lock lock(all_.mutex_);
        auto& queue = all_.queues_[{from, rank_}];
        all_.changed_.wait(lock, [&] { return !queue.empty() || all_.ended_[from] || all_.ended_[rank_]; });
        if (queue.empty()) require(from);
        require(rank_);
        Message message = std::move(queue.front());
        queue.pop_front();
        return message;
    }

  private:
    void require(uint32_t rank) const {
        if (all_.ended_[rank] || all_.ended_[rank_]) throw RankLost(fmt::format("rank {} has ended", rank));
    }

    LocalRanks& all_;
    const uint32_t rank_;
};

std::unique_ptr<Transport> LocalRanks::transport(uint32_t rank) { return std::make_unique<OfRank>(*this, rank); }

void LocalRanks::end(uint32_t rank) {
    const std::lock_guard lock(mutex_);
    ended_[rank] = true;
    changed_.notify_all();
}

} // namespace tq
