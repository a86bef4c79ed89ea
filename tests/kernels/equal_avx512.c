// equal_avx512.c: every operation of the avx512 table gives the oracle's bits.
#include "tests/kernels/equal.h"

int main(void) {
    return equal_main("avx512");
}
