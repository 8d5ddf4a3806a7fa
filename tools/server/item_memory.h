// The items of the last answers of the responses API: some clients send their ids back instead of them, as if they were stored.
#pragma once
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tq::server {

class ItemMemory {
  public:
    explicit ItemMemory(size_t max_bytes = size_t(16) << 20) : max_bytes_(max_bytes) {}

    // Items have an "id". Those that were put first are forgotten first. Each tenant sees only its own.
    void put(const std::string& tenant, const nlohmann::ordered_json& item);
    std::optional<nlohmann::ordered_json> find(const std::string& tenant, const std::string& id);

  private:
    using Entry = std::pair<std::string, std::string>; // tenant and id; the item as JSON

    const size_t max_bytes_;
    std::mutex mutex_;
    std::list<Entry> entries_; // the oldest first
    std::map<std::string, std::list<Entry>::iterator> by_key_;
    size_t bytes_ = 0;
};

} // namespace tq::server
