"""The paper (Boehm, Lanusse and Seljak 2019), figure by figure and claim by claim."""
