#include "runtime/recorder.h"
#include <doctest/doctest.h>
