// equal_avx2.c: every operation of the avx2 table gives the oracle's bits.
#include "tests/kernels/equal.h"

int main(void) {
    return equal_main("avx2");
}
