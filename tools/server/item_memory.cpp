#include "tools/server/item_memory.h"

namespace tq::server {
namespace {

std::string key_of(const std::string& tenant, const std::string& id) { return tenant + '\n' + id; }

} // namespace

void ItemMemory::put(const std::string& tenant, const nlohmann::ordered_json& item) {
    std::string key = key_of(tenant, item.at("id").get<std::string>());
    std::string text = item.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    const std::scoped_lock lock(mutex_);
    if (by_key_.contains(key)) return;
    bytes_ += key.size() + text.size();
    entries_.emplace_back(key, std::move(text));
    by_key_.emplace(std::move(key), std::prev(entries_.end()));
    while (bytes_ > max_bytes_) {
        const auto& [oldest, content] = entries_.front();
        bytes_ -= oldest.size() + content.size();
        by_key_.erase(oldest);
        entries_.pop_front();
    }
}

std::optional<nlohmann::ordered_json> ItemMemory::find(const std::string& tenant, const std::string& id) {
    const std::scoped_lock lock(mutex_);
    const auto found = by_key_.find(key_of(tenant, id));
    if (found == by_key_.end()) return std::nullopt;
    return nlohmann::ordered_json::parse(found->second->second);
}

} // namespace tq::server
