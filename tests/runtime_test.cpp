#include "runtime/recorder.h"
#include "test_shaders.gen.h"
#include <cstring>
#include <doctest/doctest.h>
using namespace tq;

TEST_CASE("a kernel's result comes back") {
    Device device;
    Buffer x = device.allocate("x", 400, Memory::upload), y = device.allocate("y", 400),
           z = device.allocate("z", 400, Memory::readback);
    for (int i = 0; i < 100; i++) reinterpret_cast<float*>(x.host().data())[i] = float(i);
    Recorder recorder(device);
    recorder.dispatch<test_shader::scale>({2}, {64}, {100, 2}, {}, y, x);
    recorder.copy(z, y);
    Commands commands = recorder.finish();
    CHECK(commands.run());
    for (int i = 0; i < 100; i++) CHECK(reinterpret_cast<float*>(z.host().data())[i] == 2 * i);
}
