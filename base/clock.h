// Texts of the wall clock's time.
#pragma once
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <string>

namespace tq {

// Now, in the local time zone, as strftime writes it: in English, as no locale of times is set.
inline std::string local_time_text(const char* format) {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
#ifdef _WIN32
    ::localtime_s(&parts, &now);
#else
    ::localtime_r(&now, &parts);
#endif
    char text[32];
    return {text, std::strftime(text, sizeof text, format, &parts)};
}

// In RFC 3339's form, to the second, UTC.
inline std::string utc_text(std::chrono::system_clock::time_point time = std::chrono::system_clock::now()) {
    const auto day = std::chrono::floor<std::chrono::days>(time);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time) - day);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", int(date.year()), unsigned(date.month()), unsigned(date.day()),
                       clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

} // namespace tq
