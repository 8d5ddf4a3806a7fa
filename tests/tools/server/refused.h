// For tests of requests that are refused.
#pragma once
#include "tools/server/api_error.h"
#include <doctest/doctest.h>

namespace tq::server {

// Runs what must be refused with a sentence and the status 400, and returns the field that is named.
template <class Run> std::string refused_field(Run run) {
    try {
        run();
    } catch (const ApiError& error) {
        CHECK(error.status == 400);
        CHECK(error.type == "invalid_request_error");
        CHECK(std::string_view(error.what()).size() > 20);
        return error.param;
    }
    return "not refused";
}

} // namespace tq::server
